#include "runtime/providers/gpu/attention_rows.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Whether scores are products by a scale that keeps their order.
bool IsPlain(const AttentionText& text) {
  return text.score == "s" && text.bias_row.empty() && text.extra == "-INFINITY_F32";
}

}  // namespace

std::string RowDefinitions(const AttentionText& text, float scale) {
  const bool is_half = text.type == DataType::kFloat16, has_bias = !text.bias_row.empty();
  return StrCat(Define("HAS_BIAS", has_bias ? 1 : 0),
                Define("BIAS_ROW", has_bias ? text.bias_row : "q"),
                Define("X_OF_BITS", is_half ? "f16_to_f32" : "bf16_to_f32"),
                Define("PAIR", is_half ? "PAIR_OF_F16" : "PAIR_OF_BF16"),
                Define("MULTIPLY", is_half ? "matrix_f16" : "matrix_bf16"),
                Define("PLAIN", IsPlain(text) && scale > 0 ? 1 : 0));
}

AttentionText WithoutBias(AttentionText text) {
  text.bias_row.clear();
  return text;
}

const std::string_view kRowMacros = R"(
#if HAS_BIAS
#define BIAS(pair, which) X_OF_BITS((u16)(biases[pair] >> (which) * 16))
#else
#define BIAS(pair, which) 0.0f
#endif
// How many keys there are from `begin` on, of a tile.
#define KEYS_FROM(begin) (i32)(keys - (begin) < KEYS ? keys - (begin) : KEYS)
// A row of an operand, few rows behind `from`.
#define ROW_AT(from, r, stride) ((from) + (u64)(u32)(r) * (u32)(stride))
// Goes through `rows` of so many parts of 16 bytes, which lanes share in turns; r and part are a
// lane's. Where lanes take whole rows, it has the same part of each.
#define FOR_PARTS(rows, parts, statement) \
  UNROLL \
  for (i32 turn = 0; turn < ((rows) * (parts) + LANES_IN_ALL - 1) / LANES_IN_ALL; ++turn) { \
    const bool are_whole = LANES_IN_ALL % (parts) == 0; \
    const u32 at = (u32)(turn * LANES_IN_ALL + lane); \
    const u32 part = (are_whole ? (u32)lane : at) % (parts); \
    const u32 r = are_whole ? (u32)lane / (parts) + (u32)(turn * (LANES_IN_ALL / (parts))) \
                            : at / (parts); \
    if ((rows) * (parts) % LANES_IN_ALL == 0 || r < (rows)) { \
      statement \
    } \
  }
)";

const std::string_view kRowQueries = R"(
  // A query that is not there has the scores of the last.
  const i64 first_query = down + lane / 32 * 16 + lane_row;
#if HAS_BIAS
  GLOBAL const X* bias_rows[2];
  UNROLL
  for (i32 r = 0; r < 2; ++r) {
    const i64 query = first_query + r * 8 < queries ? first_query + r * 8 : queries - 1;
    bias_rows[r] = (BIAS_ROW) + lane_word * 2;
  }
#endif
)";

const std::string_view kRowTotals = R"(
  const f32 extra = EXTRA, factor = PLAIN ? scale * LOG2_E : LOG2_E;
  f32 largest[2], totals[2];  // a lane's part of the total
  largest[0] = largest[1] = extra;
  totals[0] = totals[1] = extra == -INFINITY_F32 || lane_word != 0 ? 0.0f : 1.0f;
)";

const std::string_view kRowBiases = R"(
#if HAS_BIAS
    // On their way while the tile is waited for and multiplied.
    u32 biases[SCORE_PARTS * 2];
    UNROLL
    for (i32 e = 0; e < SCORE_PARTS * 2; ++e) {
      biases[e] = e / 2 * 8 + lane_word * 2 < there
                      ? *(GLOBAL const u32*)(bias_rows[e % 2] + first + e / 2 * 8)
                      : 0u;
    }
#endif
)";

const std::string_view kRowShares = R"(
      const i32 of_lane = there - lane_word * 2;
#if PLAIN
      if (there < KEYS) {
        UNROLL
        for (i32 s = 0; s < SCORE_PARTS * 4; ++s) {
          if (s / 4 * 8 + s % 2 >= of_lane) sums[s] = -INFINITY_F32;
        }
      }
#else
      UNROLL
      for (i32 e = 0; e < SCORE_PARTS * 2; ++e) {
        const i32 column = e / 2 * 8 + e % 2;
        const i64 key = first + lane_word * 2 + column;
        UNROLL
        for (i32 r = 0; r < 2; ++r) sums[e / 2 * 4 + r * 2 + e % 2] *= scale;
        if (column < of_lane) {
          UNROLL
          for (i32 r = 0; r < 2; ++r) {
            const i64 query = first_query + r * 8 < queries ? first_query + r * 8 : queries - 1;
            const f32 s = sums[e / 2 * 4 + r * 2 + e % 2];
            sums[e / 2 * 4 + r * 2 + e % 2] = (SCORE) + BIAS(e / 2 * 2 + r, e % 2);
          }
        } else {
          sums[e / 2 * 4 + e % 2] = sums[e / 2 * 4 + 2 + e % 2] = -INFINITY_F32;
        }
      }
#endif
      f32 now[2];
      now[0] = largest[0];
      now[1] = largest[1];
      UNROLL
      for (i32 s = 0; s < SCORE_PARTS * 4; ++s) now[s / 2 % 2] = fmax(now[s / 2 % 2], sums[s]);
      now[0] = quad_max(now[0], EXCHANGED);
      now[1] = quad_max(now[1], EXCHANGED);
      UNROLL
      for (i32 r = 0; r < 2; ++r) {
        // Nothing is seen yet: differences of infinities would not be numbers.
        const f32 base = now[r] == -INFINITY_F32 ? 0.0f : now[r] * factor;
        const f32 kept = QUICK_EXP2(largest[r] * factor - base);
        largest[r] = now[r];
        totals[r] *= kept;
        UNROLL
        for (i32 e = 0; e < RESULT_PARTS * 2; ++e) {
          sums[(SCORE_PARTS + e / 2) * 4 + r * 2 + e % 2] *= kept;
        }
        UNROLL
        for (i32 part = 0; part < SCORE_PARTS; ++part) {
          const f32 low = QUICK_EXP2(sums[part * 4 + r * 2] * factor - base);
          const f32 high = QUICK_EXP2(sums[part * 4 + r * 2 + 1] * factor - base);
          totals[r] += low + high;
          words[SHARES_AT + part / 2 * 4 + part % 2 * 2 + r] = PAIR(low, high);
        }
      }
)";

const std::string_view kRowResults = R"(
  totals[0] = quad_sum(totals[0], EXCHANGED);
  totals[1] = quad_sum(totals[1], EXCHANGED);
  COPIES_WAIT(0);
  BARRIER();
  // Results are joined to rows first.
  UNROLL
  for (i32 r = 0; r < 2; ++r) {
    const f32 total = totals[r], share = 1.0f / total;
    const bool is_zero = ZEROS;
    const i32 row = lane / 32 * 16 + lane_row + r * 8;
    LOCAL_POINTER u32* to = (LOCAL_POINTER u32*)(room + row * VALUE_ROW) + lane_word;
    UNROLL
    for (i32 part = 0; part < RESULT_PARTS; ++part) {
      const f32 low = sums[(SCORE_PARTS + part) * 4 + r * 2] * share;
      const f32 high = sums[(SCORE_PARTS + part) * 4 + r * 2 + 1] * share;
      to[part * 4] = is_zero ? 0u : PAIR(low, high);
    }
  }
  BARRIER();
  GLOBAL X* results_at = y + y_at + down * y_row;
  FOR_PARTS(
      QUERIES, RESULT_PARTS, if (down + r < queries) {
        *(GLOBAL uint4*)(ROW_AT(results_at, r, y_row) + part * 8) = room[r * VALUE_ROW + part];
      })
}
)";

}  // namespace onnxd
