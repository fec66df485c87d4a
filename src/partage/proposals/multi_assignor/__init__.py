"""The first proposal of client-side assignment: every member computes the assignment.

The coordinator collects the metadata of all members and sends all of it to all of them. Each member
runs the same assignor on the same input and takes its own part of the result. A hash of the topic
metadata in each member's metadata shows whether the inputs are the same.
"""
