"""Every protocol revision as data: a module each says only what it changed, `table` folds them.

Handlers speak the newest vocabulary; a `Version` reads params into it and walks results back to
the shapes of its own time. Few modules beside this package and `session` ask for the era:
`tests/test_house.py` lists them.
"""
