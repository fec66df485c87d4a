"""Examples of the public interface of Partage. Each says in its docstring how to run it."""
