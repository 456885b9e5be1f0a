"""`fastmcp`, the library of its own: versions 2 to 4, which differ little in what servers see of them."""
