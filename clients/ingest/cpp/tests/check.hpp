// A check that says where it failed, and a status at the end.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

inline int failures = 0;

#define CHECK(holds)                                                                       \
    do {                                                                                   \
        if (!(holds)) {                                                                    \
            ++failures;                                                                    \
            std::printf("FAILED %s:%d: %s\n", __FILE__, __LINE__, #holds);                 \
        }                                                                                  \
    } while (false)

#define THROWS(kind, does)                                                                 \
    do {                                                                                   \
        bool threw = false;                                                                \
        try {                                                                              \
            does;                                                                          \
        } catch (const kind&) {                                                            \
            threw = true;                                                                  \
        }                                                                                  \
        if (!threw) {                                                                      \
            ++failures;                                                                    \
            std::printf("FAILED %s:%d: %s is not thrown\n", __FILE__, __LINE__, #kind);    \
        }                                                                                  \
    } while (false)

template <class Test>
void run(const char* name, Test test) {
    int before = failures;
    try {
        test();
    } catch (const std::exception& failure) {
        ++failures;
        std::printf("FAILED %s: %s\n", name, failure.what());
    }
    std::printf("%s %s\n", failures == before ? "ok  " : "FAIL", name);
    std::fflush(stdout);
}
