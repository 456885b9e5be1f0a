"""Every protocol revision as data: a module each says only what it changed, `table` folds them.

Handlers speak the newest vocabulary; a `Version` reads params into it and walks results back to
the shapes of its own time. Only this package and `session` know that versions differ.
"""
