"""Attention kernels of three papers, step by step; README.md tells the story."""

STEPS = (
    "step1_pytorch",
    "step2_naive",
    "step3_q_block",
    "step4_parallel_softmax",
    "step5_tile_size",
    "step6_prefix_prefill",
    "step7_static_grid",
    "step8_tuned",
    "step9_pod",
)
