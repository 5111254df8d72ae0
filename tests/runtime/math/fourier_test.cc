#include "runtime/math/fourier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

namespace onnxd::math {
namespace {

std::complex<double> SumOf(const std::vector<double>& real, const std::vector<double>& imaginary,
                           int64_t signals, int64_t signal, int64_t frequency) {
  const auto length = static_cast<int64_t>(real.size()) / signals;
  std::complex<double> sum;
  for (int64_t t = 0; t < length; ++t) {
    const double turn = static_cast<double>(t * frequency % length) / static_cast<double>(length);
    const auto at = static_cast<size_t>(t * signals + signal);
    sum += std::complex(real[at], imaginary[at]) * std::polar(1.0, -2 * std::numbers::pi * turn);
  }
  return sum;
}

// Every kind of stage, alone and together, and lengths with a prime factor beyond them.
TEST(FourierTransform, OfAnyLengthIsTheSumThatItStandsFor) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const int64_t length : {1, 2, 3, 4, 5, 7, 8, 11, 13, 17, 34, 60, 97, 128, 143, 210, 400}) {
    const FourierTransform transform(length);
    for (const int64_t signals : {1, 5}) {
      std::vector<double> real(static_cast<size_t>(length * signals)), imaginary(real.size());
      for (double& x : real) x = normal(random);
      for (double& x : imaginary) x = normal(random);
      std::vector<double> to_real = real, to_imaginary = imaginary, scratch;
      transform.Run(to_real.data(), to_imaginary.data(), signals, scratch);
      for (int64_t i = 0; i < length * signals; ++i) {
        const auto wanted = SumOf(real, imaginary, signals, i % signals, i / signals);
        const auto at = static_cast<size_t>(i);
        EXPECT_NEAR(to_real[at], wanted.real(), 1e-11) << length << " " << i;
        EXPECT_NEAR(to_imaginary[at], wanted.imag(), 1e-11) << length << " " << i;
      }
      transform.Run(to_imaginary.data(), to_real.data(), signals, scratch);  // and back
      for (size_t i = 0; i < real.size(); ++i) {
        EXPECT_NEAR(to_real[i] / static_cast<double>(length), real[i], 1e-12);
        EXPECT_NEAR(to_imaginary[i] / static_cast<double>(length), imaginary[i], 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace onnxd::math
