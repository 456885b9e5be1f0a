"""The names of `mcp.types`, as pydantic models of our own.

A module for each chapter of the specification, loaded when the first name of it is asked for.
"""
