"""A Django project that publishes its orders, and a worker that handles them."""
