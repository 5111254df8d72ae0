// Discrete Fourier transforms of any length.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace onnxd::math {

// y[f] = the sum over t of x[t] * exp(-2 pi i f t / length), of many signals at once. Lengths whose
// prime factors are at most 13 take length * the sum of these; others a convolution whose length is
// a power of two (Bluestein, "A linear filtering approach to the computation of discrete Fourier
// transform", 1970). Immutable; any thread.
class FourierTransform {
 public:
  explicit FourierTransform(int64_t length);  // at least 1

  int64_t length() const { return length_; }

  // In place: element t of signal s is real[t * signals + s] and as much of `imaginary`. With the
  // two exchanged it is the inverse transform, times the length. `scratch` is what a caller that
  // comes again keeps.
  void Run(double* real, double* imaginary, int64_t signals, std::vector<double>& scratch) const;

 private:
  struct Stage {
    int radix;
    int64_t rest;                               // length of the transforms that it leaves
    std::vector<std::complex<double>> factors;  // [rest, radix - 1]
  };
  void RunStages(double* real, double* imaginary, int64_t signals,
                 std::vector<double>& scratch) const;
  void RunConvolution(double* real, double* imaginary, int64_t signals,
                      std::vector<double>& scratch) const;

  int64_t length_;
  std::vector<Stage> stages_;
  std::unique_ptr<const FourierTransform> padded_;  // null: by stages
  std::vector<std::complex<double>> chirp_;         // [length]
  std::vector<std::complex<double>> filter_;        // [padded length], transformed and scaled
};

}  // namespace onnxd::math
