"""The middleware that comes with the library, as far as it is simple."""
