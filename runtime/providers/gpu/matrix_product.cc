#include "runtime/providers/gpu/matrix_product.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Steps of 16 words of each row of a, and of each column of b, go through local memory, where a row
// takes 20: 32 lanes that read 4 words of 8 rows meet no bank twice. While one step is multiplied
// the next is on its way from the device's memory.
//
// Until the sums are there, A_GET and B_GET give elements as they are in memory, so that 16-bit
// floats are not converted to and fro.
constexpr std::string_view kSums = R"(
#define STEP_WORDS 16
#define ROW_WORDS 20
#define STEP (STEP_WORDS * PER_WORD)
#define WARPS_ACROSS (COLUMNS / WARP_COLUMNS)
#define LANES_IN_ALL (ROWS / WARP_ROWS * WARPS_ACROSS * 32)
#define A_WORDS (ROWS * STEP_WORDS / LANES_IN_ALL)
#define B_WORDS (COLUMNS * STEP_WORDS / LANES_IN_ALL)
#define DOWN (WARP_ROWS / 16)
#define ACROSS (WARP_COLUMNS / 8)
// A zero point of one side needs the sums of the other side's rows or columns: products with ones,
// which stand behind the last row of a, and behind the last column of b.
#define ALL_DOWN (DOWN + HAS_A_ZERO)
#define ALL_ACROSS (ACROSS + HAS_B_ZERO)
#define ONES 0x01010101u
#if PER_WORD == 1
#define BITS(element) f32_to_tf32(element)
#define ROUNDED(word) f32_to_tf32(f32_of_bits(word))
#else
#define BITS(element) ((u32)(BITS_TYPE)(element))
#define ROUNDED(word) (word)
#endif
// The word of elements p and, where a word holds several, those behind it; with nothing beyond k.
#define LOAD_WORD(target, inside, load) \
  { \
    target = 0; \
    UNROLL \
    for (i32 of_word = 0; of_word < PER_WORD; ++of_word) { \
      const IX p = p_of_word + of_word; \
      if ((inside) && p < k) target |= BITS(load) << (of_word * (32 / PER_WORD)); \
    } \
  }
// Which word of which of `rows` rows is the q-th of a lane: of four neighbours where they are loaded
// by vectors.
#define PLACE(by_p, vectors, rows, q) \
  const i32 e = ((vectors) ? (q) / 4 : (q)) * LANES_IN_ALL + lane; \
  const i32 at = (vectors) ? e / (STEP_WORDS / 4) : (by_p) ? e / STEP_WORDS : e % (rows); \
  const i32 word = (vectors) ? e % (STEP_WORDS / 4) * 4 + (q) % 4 \
                   : (by_p)  ? e % STEP_WORDS \
                             : e / (rows);
// Of the rows of `from`, `size` in all, those behind `begin`, whose elements are at `place`.
#define OF_ROWS(i, p) ((i64)(i) * k + (p))
#define LOAD_VECTORS(words, count, from, place, begin, rows, size) \
  UNROLL \
  for (i32 q = 0; q < (count); q += 4) { \
    PLACE(1, 1, rows, q) \
    const IX row = (IX)((begin) + at), p = (IX)(next + word * PER_WORD); \
    uint4 loaded; \
    loaded.x = loaded.y = loaded.z = loaded.w = 0; \
    if (row < (size) && p < k) { \
      const i64 element = place(row, p); \
      if (element >= 0) loaded = *(GLOBAL const uint4*)((from) + element); \
    } \
    words[q] = ROUNDED(loaded.x); \
    words[q + 1] = ROUNDED(loaded.y); \
    words[q + 2] = ROUNDED(loaded.z); \
    words[q + 3] = ROUNDED(loaded.w); \
  }
#define KEEP(target, words, count, by_p, vectors, rows) \
  UNROLL \
  for (i32 q = 0; q < (count); ++q) { \
    PLACE(by_p, vectors, rows, q) \
    target[(empty * (rows) + at) * ROW_WORDS + word] = words[q]; \
  }

KERNEL matrix_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                      i64 k, i64 tiles_down, i64 tiles_across) {
  LOCAL u32 left[2 * ROWS * ROW_WORDS];
  LOCAL u32 right[2 * COLUMNS * ROW_WORDS];
  EXCHANGE(LANES_IN_ALL)
  i64 group = GROUP(0);
  const i64 across = group % tiles_across * COLUMNS;
  group /= tiles_across;
  const i64 down = group % tiles_down * ROWS;
  const i64 batch = group / tiles_down;
  SETUP
  const i32 lane = LANE(0);
  const i32 warp_row = lane / 32 / WARPS_ACROSS * WARP_ROWS;
  const i32 warp_column = lane / 32 % WARPS_ACROSS * WARP_COLUMNS;
  const i32 lane_row = lane % 32 / 4, lane_word = lane % 4;
  ACC sums[ALL_DOWN * ALL_ACROSS * 4];
  UNROLL
  for (i32 s = 0; s < ALL_DOWN * ALL_ACROSS * 4; ++s) sums[s] = 0;
  u32 a_words[A_WORDS], b_words[B_WORDS];
#if !B_BY_P
  // A lane loads the same column in every step.
  const IX j = (IX)(across + lane % COLUMNS);
  COLUMN
#endif
  i32 filled = 0;
  for (i64 first = -STEP; first < k; first += STEP) {
    const i64 next = first + STEP;
    if (next < k) {
#if A_VECTORS
      LOAD_VECTORS(a_words, A_WORDS, a, A_PLACE, down, ROWS, m)
#else
      UNROLL
      for (i32 q = 0; q < A_WORDS; ++q) {
        PLACE(A_BY_P, 0, ROWS, q)
        const IX i = (IX)(down + at), p_of_word = (IX)(next + word * PER_WORD);
        LOAD_WORD(a_words[q], i < m, LOAD_A)
      }
#endif
#if B_VECTORS
      LOAD_VECTORS(b_words, B_WORDS, b, OF_ROWS, across, COLUMNS, n)
#else
      UNROLL
      for (i32 q = 0; q < B_WORDS; ++q) {
        PLACE(B_BY_P, 0, COLUMNS, q)
        const IX p_of_word = (IX)(next + word * PER_WORD);
#if B_BY_P
        const IX j = (IX)(across + at);
        COLUMN
#else
        (void)at;
#endif
        LOAD_WORD(b_words[q], j < n, LOAD_B)
      }
#endif
    }
    if (first >= 0) {
      LOCAL_POINTER const u32* a_rows =
          left + (filled * ROWS + warp_row + lane_row) * ROW_WORDS + lane_word;
      LOCAL_POINTER const u32* b_rows =
          right + (filled * COLUMNS + warp_column + lane_row) * ROW_WORDS + lane_word;
      UNROLL
      for (i32 word = 0; word < STEP_WORDS; word += 8) {
        u32 a_parts[ALL_DOWN * 4], b_parts[ALL_ACROSS * 2];
#if HAS_A_ZERO
        UNROLL
        for (i32 i = 0; i < 4; ++i) a_parts[DOWN * 4 + i] = ONES;
#endif
#if HAS_B_ZERO
        b_parts[ACROSS * 2] = b_parts[ACROSS * 2 + 1] = ONES;
#endif
        UNROLL
        for (i32 r = 0; r < DOWN; ++r) {
          a_parts[r * 4] = a_rows[r * 16 * ROW_WORDS + word];
          a_parts[r * 4 + 1] = a_rows[(r * 16 + 8) * ROW_WORDS + word];
          a_parts[r * 4 + 2] = a_rows[r * 16 * ROW_WORDS + word + 4];
          a_parts[r * 4 + 3] = a_rows[(r * 16 + 8) * ROW_WORDS + word + 4];
        }
        UNROLL
        for (i32 c = 0; c < ACROSS; ++c) {
          b_parts[c * 2] = b_rows[c * 8 * ROW_WORDS + word];
          b_parts[c * 2 + 1] = b_rows[c * 8 * ROW_WORDS + word + 4];
        }
        UNROLL
        for (i32 r = 0; r < ALL_DOWN; ++r) {
          UNROLL
          for (i32 c = 0; c < ALL_ACROSS; ++c) {
            MULTIPLY(sums + (r * ALL_ACROSS + c) * 4, a_parts + r * 4, b_parts + c * 2, EXCHANGED);
          }
        }
      }
      filled = 1 - filled;
    }
    if (next < k) {
      const i32 empty = first < 0 ? 0 : filled;
      KEEP(left, a_words, A_WORDS, A_BY_P, A_VECTORS, ROWS)
      KEEP(right, b_words, B_WORDS, B_BY_P, B_VECTORS, COLUMNS)
    }
    BARRIER();
  }
)";

// The rest of it.
constexpr std::string_view kResults = R"(
#define SUM_OF(row, column) sums[((row) * ALL_ACROSS + (column)) * 4 + of_part]
#if HAS_A_ZERO && HAS_B_ZERO
#define OF_ZEROS \
  ((u32)(A_ZERO) * ((u32)SUM_OF(DOWN, part_across) - (u32)k * (u32)(B_ZERO)) + \
   (u32)(B_ZERO) * (u32)SUM_OF(part_down, ACROSS))
#elif HAS_A_ZERO
#define OF_ZEROS ((u32)(A_ZERO) * (u32)SUM_OF(DOWN, part_across))
#elif HAS_B_ZERO
#define OF_ZEROS ((u32)(B_ZERO) * (u32)SUM_OF(part_down, ACROSS))
#endif
#if HAS_A_ZERO || HAS_B_ZERO
#define WITHOUT_ZEROS(sum) (ACC)((u32)(sum) - OF_ZEROS)
#else
#define WITHOUT_ZEROS(sum) (sum)
#endif
  UNROLL
  for (i32 s = 0; s < DOWN * ACROSS * 4; ++s) {
    const i32 part_down = s / 4 / ACROSS, part_across = s / 4 % ACROSS, of_part = s % 4;
    const IX i = (IX)(down + warp_row + part_down * 16 + of_part / 2 * 8 + lane_row);
    const IX j = (IX)(across + warp_column + part_across * 8 + lane_word * 2 + of_part % 2);
    if (i < m && j < n) {
      const ACC sum = WITHOUT_ZEROS(SUM_OF(part_down, part_across));
      const i64 at = ((i64)batch * m + i) * n + j;
      const ACC value = RESULT;
      Y_PUT(y, at, FINISHED);
    }
  }
}
)";

// A_GET and the like of elements as they are in memory.
std::string Plain(std::string_view name, DataType type) {
  const std::string_view storage = StorageName(type);
  return StrCat("#define ", name, " ", storage, "\n#define ", name, "_C ", storage, "\n#define ",
                name, "_GET(p, i) (p)[i]\n");
}

// The same macros as expressions of results want them.
std::string Converted(std::string_view name, DataType type) {
  return StrCat("#undef ", name, "\n#undef ", name, "_C\n#undef ", name, "_GET\n",
                DefineType(name, type));
}

std::string UnitOf(DataType a, DataType b) {
  if (IsByte(a)) return StrCat("matrix_", StorageName(a), "_", StorageName(b));
  if (a == DataType::kFloat16) return "matrix_f16";
  return a == DataType::kBfloat16 ? "matrix_bf16" : "matrix_tf32";
}

}  // namespace

const std::vector<MatrixTile>& MatrixTiles() {
  static const std::vector<MatrixTile> tiles = {
      {128, 128, 64, 32}, {128, 64, 32, 32}, {64, 64, 32, 32}};
  return tiles;
}

bool IsForMatrixUnits(const ProductText& text, bool use_tf32) {
  if (IsByte(text.a) && IsByte(text.b)) return text.accumulator == "i32";
  if (text.a != text.b || text.accumulator != "f32") return false;
  if (text.a == DataType::kFloat) return use_tf32;
  return text.a == DataType::kFloat16 || text.a == DataType::kBfloat16;
}

std::string MatrixProductSource(const ProductText& text, const ProductSizes& sizes,
                                const MatrixTile& tile, bool wide) {
  const int64_t per_word = IsByte(text.a) ? 4 : text.a == DataType::kFloat ? 1 : 2;
  const auto in_vectors = [&](int64_t run) { return run % (4 * per_word) == 0; };
  const bool a_vectors =
      text.a_place.empty() ? text.a_rows && in_vectors(sizes.k) : in_vectors(text.a_run);
  return StrCat(
      Define("IX", wide ? "i64" : "i32"), Plain("A", text.a), Plain("B", text.b),
      Define("BITS_TYPE", per_word == 4 ? "u8" : "u16"), Define("PER_WORD", per_word),
      DefineType("Y", text.y), Define("ACC", text.accumulator),
      Define("MULTIPLY", UnitOf(text.a, text.b)), Define("HAS_A_ZERO", text.a_zero.empty() ? 0 : 1),
      Define("HAS_B_ZERO", text.b_zero.empty() ? 0 : 1), Define("A_ZERO", text.a_zero),
      Define("B_ZERO", text.b_zero), Define("A_BY_P", text.a_by_p ? 1 : 0),
      Define("B_BY_P", text.b_by_p ? 1 : 0), Define("A_VECTORS", a_vectors ? 1 : 0),
      Define("A_PLACE(i, p)", text.a_place.empty() ? "OF_ROWS(i, p)" : text.a_place),
      Define("B_VECTORS", text.b_rows && in_vectors(sizes.k) ? 1 : 0), Define("ROWS", tile.rows),
      Define("COLUMNS", tile.columns), Define("WARP_ROWS", tile.warp_rows),
      Define("WARP_COLUMNS", tile.warp_columns), Define("PARAMETERS", text.parameters),
      Define("SETUP", text.setup), Define("COLUMN", text.column), Define("LOAD_A", text.load_a),
      Define("LOAD_B", text.load_b), Define("RESULT", text.result),
      Define("FINISHED", text.finished), text.functions, kSums, Converted("A", text.a),
      Converted("B", text.b), kResults);
}

}  // namespace onnxd
