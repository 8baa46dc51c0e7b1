"""Fused attention played instruction by instruction on the engines of NeuronCores."""
