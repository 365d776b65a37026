"""How fast a serving engine is with these kernels: latency by output length, and throughput."""
