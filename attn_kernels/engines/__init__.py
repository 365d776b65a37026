"""Integrations with inference engines, one module each; importing a module registers the attention."""
