"""The main job on real input: two models trained sharded and not, and the proof they agree."""
