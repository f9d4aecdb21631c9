"""Value sets, products of them, and the relations between products.

Notifications, filters, advertisements and queries are products of value sets. The operators that
make value sets are in `sets`. The layers `syntax` and `codec` above convert them to text and bytes.
"""
