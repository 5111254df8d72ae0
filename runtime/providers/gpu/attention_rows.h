// What kernels of attention on matrix units share: how a warp has 16 queries, and what becomes of
// their scores. Lane 4 * g + t of a warp has queries g and g + 8; its sums[] are first of
// SCORE_PARTS parts of 8 keys, then of RESULT_PARTS parts of 8 results, of which sums[4 * part] and
// the next are columns 2 * t and 2 * t + 1 of the first query, the two behind them of the second.
#pragma once

#include <string>
#include <string_view>

#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {

// What the text below asks for, but for SCORE_PARTS, RESULT_PARTS, VALUE_ROW, LANES_IN_ALL, KEYS
// and SHARES_AT, where the words of shares are in words[].
std::string RowDefinitions(const AttentionText& text, float scale);
// For AttentionDefinitions, since these kernels load the bias ahead.
AttentionText WithoutBias(AttentionText text);

// KEYS_FROM, ROW_AT and FOR_PARTS; BIAS.
extern const std::string_view kRowMacros;
// Behind FIND_HEAD, lane, lane_row (g) and lane_word (t): the lane's queries.
extern const std::string_view kRowQueries;
// largest[] and totals[].
extern const std::string_view kRowTotals;
// For each tile, of `there` keys from `first` on: loads the bias.
extern const std::string_view kRowBiases;
// Makes the words of shares of the scores, and takes the results along. Exponents are of two, and
// take the scale along where nothing else becomes of scores (PLAIN).
extern const std::string_view kRowShares;
// Divides the results, joins them to rows in room[] and writes these; ends the kernel.
extern const std::string_view kRowResults;

}  // namespace onnxd
