// The packed kernels against loops over their definition; exits with a message where they differ.
#pragma once

void test_packed();
