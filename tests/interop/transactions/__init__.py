"""The same requests of transactional producers for each broker."""
