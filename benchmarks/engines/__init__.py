"""How fast a serving engine is with these kernels, by output length, and whether its tokens are right."""
