"""What single steps of hardware cost, for both engines; `mapping` says what there is to do.

Prices for `analytic` and `emulate` and nobody else: the closed form and the played one differ in
how steps overlap, so what one step takes is written once.
"""
