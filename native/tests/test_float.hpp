// Called by the program of the kernels' tests.
#pragma once
void test_float();
