"""Webhooks of events: consent, signed deliveries, retries, and where subscriptions are kept.

Loaded with the first webhook subscription. Start reading at `engine.py`.
"""
