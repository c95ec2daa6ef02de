// The pool of threads: every task runs once, on no more threads than asked for, also in a forked process.
#pragma once

void test_threads();
