#include "runtime/math/fourier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace onnxd::math {
namespace {

using Complex = std::complex<double>;

constexpr int kRadices[] = {4, 2, 3, 5, 7, 11, 13};

// exp(-2 pi i numerator / denominator)
Complex Root(int64_t numerator, int64_t denominator) {
  const double turn =
      static_cast<double>(numerator % denominator) / static_cast<double>(denominator);
  return std::polar(1.0, -2 * std::numbers::pi * turn);
}

// Signals, or what is left of them, as two rows of numbers.
struct Rows {
  double* real;
  double* imaginary;
};

// x * factor
inline void StoreProduct(double real, double imaginary, Complex factor, double& to_real,
                         double& to_imaginary) {
  to_real = real * factor.real() - imaginary * factor.imag();
  to_imaginary = real * factor.imag() + imaginary * factor.real();
}

// Transforms of `radix` numbers that lie `stride` apart, each of `width` neighbours; the results
// follow each other, width apart, times 1 and the factors.
inline void Butterflies2(const Rows& x, int64_t stride, const Complex* factors, const Rows& y,
                         int64_t width) {
  const Complex w = factors[0];
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) {
    const double ar = x.real[k], ai = x.imaginary[k];
    const double br = x.real[stride + k], bi = x.imaginary[stride + k];
    y.real[k] = ar + br;
    y.imaginary[k] = ai + bi;
    StoreProduct(ar - br, ai - bi, w, y.real[width + k], y.imaginary[width + k]);
  }
}

inline void Butterflies4(const Rows& x, int64_t stride, const Complex* factors, const Rows& y,
                         int64_t width) {
  const Complex w1 = factors[0], w2 = factors[1], w3 = factors[2];
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) {
    const double *r = x.real + k, *i = x.imaginary + k;
    const double even_r = r[0] + r[2 * stride], even_i = i[0] + i[2 * stride];
    const double odd_r = r[stride] + r[3 * stride], odd_i = i[stride] + i[3 * stride];
    const double left_r = r[0] - r[2 * stride], left_i = i[0] - i[2 * stride];
    const double right_r = r[stride] - r[3 * stride], right_i = i[stride] - i[3 * stride];
    double *to_r = y.real + k, *to_i = y.imaginary + k;
    to_r[0] = even_r + odd_r;
    to_i[0] = even_i + odd_i;
    StoreProduct(left_r + right_i, left_i - right_r, w1, to_r[width], to_i[width]);
    StoreProduct(even_r - odd_r, even_i - odd_i, w2, to_r[2 * width], to_i[2 * width]);
    StoreProduct(left_r - right_i, left_i + right_r, w3, to_r[3 * width], to_i[3 * width]);
  }
}

// Of an odd radix: elements q and radix - q meet conjugate roots.
template <int radix>
inline void OddButterflies(const Rows& x, int64_t stride, const Complex* factors, const Rows& y,
                           int64_t width) {
  constexpr int kPairs = (radix - 1) / 2;
  static const auto roots = [] {
    std::array<Complex, radix> made;
    for (int q = 0; q < radix; ++q) made[static_cast<size_t>(q)] = Root(q, radix);
    return made;
  }();
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) {
    double sum_r[kPairs], sum_i[kPairs], difference_r[kPairs], difference_i[kPairs];
    const double first_r = x.real[k], first_i = x.imaginary[k];
    double total_r = first_r, total_i = first_i;
    for (int q = 0; q < kPairs; ++q) {
      const int64_t at = (q + 1) * stride + k, mirror = (radix - 1 - q) * stride + k;
      sum_r[q] = x.real[at] + x.real[mirror];
      sum_i[q] = x.imaginary[at] + x.imaginary[mirror];
      difference_r[q] = x.real[at] - x.real[mirror];
      difference_i[q] = x.imaginary[at] - x.imaginary[mirror];
      total_r += sum_r[q];
      total_i += sum_i[q];
    }
    y.real[k] = total_r;
    y.imaginary[k] = total_i;
    for (int out = 1; out <= kPairs; ++out) {
      double even_r = first_r, even_i = first_i, odd_r = 0, odd_i = 0;
      for (int q = 0; q < kPairs; ++q) {
        const Complex root = roots[static_cast<size_t>((q + 1) * out % radix)];
        even_r += root.real() * sum_r[q];
        even_i += root.real() * sum_i[q];
        odd_r -= root.imag() * difference_i[q];
        odd_i += root.imag() * difference_r[q];
      }
      const int64_t at = out * width + k, mirror = (radix - out) * width + k;
      StoreProduct(even_r + odd_r, even_i + odd_i, factors[out - 1], y.real[at], y.imaginary[at]);
      StoreProduct(even_r - odd_r, even_i - odd_i, factors[radix - out - 1], y.real[mirror],
                   y.imaginary[mirror]);
    }
  }
}

void Butterflies(int radix, const Rows& x, int64_t stride, const Complex* factors, const Rows& y,
                 int64_t width) {
  switch (radix) {
    case 2:
      return Butterflies2(x, stride, factors, y, width);
    case 3:
      return OddButterflies<3>(x, stride, factors, y, width);
    case 4:
      return Butterflies4(x, stride, factors, y, width);
    case 5:
      return OddButterflies<5>(x, stride, factors, y, width);
    case 7:
      return OddButterflies<7>(x, stride, factors, y, width);
    case 11:
      return OddButterflies<11>(x, stride, factors, y, width);
    default:
      return OddButterflies<13>(x, stride, factors, y, width);
  }
}

int64_t PowerOfTwoFrom(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

}  // namespace

FourierTransform::FourierTransform(int64_t length) : length_(length) {
  int64_t rest = length;
  for (const int radix : kRadices) {
    for (; rest % radix == 0; rest /= radix) {
      Stage stage{radix, rest / radix, {}};
      for (int64_t j = 0; j < stage.rest; ++j) {
        for (int r = 1; r < radix; ++r) stage.factors.push_back(Root(j * r, rest));
      }
      stages_.push_back(std::move(stage));
    }
  }
  if (rest == 1) return;
  stages_.clear();
  padded_ = std::make_unique<const FourierTransform>(PowerOfTwoFrom(2 * length - 1));
  const auto padded = static_cast<size_t>(padded_->length());
  std::vector<double> real(padded), imaginary(padded), scratch;
  for (int64_t t = 0; t < length; ++t) {
    const auto at = static_cast<size_t>(t);
    chirp_.push_back(Root(t * t % (2 * length), 2 * length));
    real[at] = chirp_[at].real();
    imaginary[at] = -chirp_[at].imag();
    if (t == 0) continue;
    real[padded - at] = real[at];
    imaginary[padded - at] = imaginary[at];
  }
  padded_->Run(real.data(), imaginary.data(), 1, scratch);
  const double scale = 1.0 / static_cast<double>(padded);
  for (size_t i = 0; i < padded; ++i) filter_.emplace_back(real[i] * scale, imaginary[i] * scale);
}

void FourierTransform::Run(double* real, double* imaginary, int64_t signals,
                           std::vector<double>& scratch) const {
  padded_ == nullptr ? RunStages(real, imaginary, signals, scratch)
                     : RunConvolution(real, imaginary, signals, scratch);
}

// Each stage leaves its results in the order that the next one wants (Stockham's; Van Loan,
// "Computational Frameworks for the Fast Fourier Transform", 1992).
void FourierTransform::RunStages(double* real, double* imaginary, int64_t signals,
                                 std::vector<double>& scratch) const {
  const auto size = static_cast<size_t>(length_ * signals);
  scratch.resize(std::max(scratch.size(), 2 * size));
  Rows x{real, imaginary}, y{scratch.data(), scratch.data() + size};
  int64_t width = signals;
  for (const Stage& stage : stages_) {
    const Complex* factors = stage.factors.data();
    for (int64_t j = 0; j < stage.rest; ++j, factors += stage.radix - 1) {
      const int64_t from = j * width, to = j * stage.radix * width;
      Butterflies(stage.radix, {x.real + from, x.imaginary + from}, stage.rest * width, factors,
                  {y.real + to, y.imaginary + to}, width);
    }
    std::swap(x, y);
    width *= stage.radix;
  }
  if (x.real == real) return;
  std::copy_n(x.real, size, real);
  std::copy_n(x.imaginary, size, imaginary);
}

void FourierTransform::RunConvolution(double* real, double* imaginary, int64_t signals,
                                      std::vector<double>& scratch) const {
  const auto size = static_cast<size_t>(padded_->length() * signals);
  std::vector<double> a(2 * size);
  double *const a_real = a.data(), *const a_imaginary = a.data() + size;
  const auto multiply = [signals](double* r, double* i, Complex factor) {
    for (int64_t s = 0; s < signals; ++s) StoreProduct(r[s], i[s], factor, r[s], i[s]);
  };
  const auto by_chirp = [&](double* r, double* i) {
    for (int64_t t = 0; t < length_; ++t) {
      multiply(r + t * signals, i + t * signals, chirp_[static_cast<size_t>(t)]);
    }
  };
  by_chirp(real, imaginary);
  std::copy_n(real, length_ * signals, a_real);
  std::copy_n(imaginary, length_ * signals, a_imaginary);
  padded_->Run(a_real, a_imaginary, signals, scratch);
  for (int64_t t = 0; t < padded_->length(); ++t) {
    multiply(a_real + t * signals, a_imaginary + t * signals, filter_[static_cast<size_t>(t)]);
  }
  padded_->Run(a_imaginary, a_real, signals, scratch);
  by_chirp(a_real, a_imaginary);
  std::copy_n(a_real, length_ * signals, real);
  std::copy_n(a_imaginary, length_ * signals, imaginary);
}

}  // namespace onnxd::math
