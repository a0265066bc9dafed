// The fields behind the cells (device/field/cells.h): what the kernel text computes, in the tower of primes that one
// trial draws (kdsl/prove/fields.py), or the degrees of the polynomials that it computes (kdsl/prove/algebra.py).
#ifdef KDSL_FIELD

#include <array>
#include <cmath>
#include <cstring>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "findings.h"
#include "state.h"

namespace kdsl {

Field field;

void no_meaning(const char* what) {
  outside_emulation((std::string("field: ") + what).c_str());
  __builtin_unreachable();
}

namespace {

constexpr uint32_t kTable = 1024;
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
constexpr unsigned kDegreeBits = 14;
constexpr uint32_t kMostDegree = (1u << kDegreeBits) - 1;

uint64_t salt = 0;
uint32_t ln2[kLevels], log2e[kLevels];
uint32_t table[kLevels][3][kTable];  // of exp, from the level above
uint32_t largest_exponent = 0;
bool assumes_softplus = false, uses_random = false;

uint64_t prime_of(unsigned level) { return field.prime[kLevel0 + level]; }
Datum element(unsigned level, uint64_t payload) { return Datum(kLevel0 + level) << kTagShift | Datum(payload); }
unsigned level_of(Datum a) { return tag_of(a) - kLevel0; }
uint64_t payload(Datum a) { return a & kPayload; }

uint64_t power(uint64_t base, uint64_t exponent, uint64_t p) {
  uint64_t result = 1;
  for (base %= p; exponent; exponent >>= 1, base = base * base % p) {
    if (exponent & 1) result = result * base % p;
  }
  return result;
}

[[noreturn]] void divides_by_zero() {
  std::printf("division kernel=%d line=%d\n", state.launch.number, line);
  end_run(0);
}

uint64_t inverse(uint64_t a, uint64_t p) {
  if (a == 0) divides_by_zero();
  return power(a, p - 2, p);
}

// --- constants ----------------------------------------------------------------------------------------------------

enum Symbol : uint8_t { kNone, kSymbolLog2E, kSymbolLn2 };  // log2 e and ln 2 are what is meant, not their digits
struct Constant { double factor; Symbol symbol; };
std::vector<Constant> constants;
std::map<std::pair<uint64_t, int>, Datum> constant_of;

Datum constant(double factor, Symbol symbol) {
  if (!std::isfinite(factor)) no_meaning("an infinity or NaN");
  if (factor == 0) factor = 0, symbol = kNone;
  const auto [entry, is_new] = constant_of.try_emplace({std::bit_cast<uint64_t>(factor), symbol}, 0);
  if (is_new) {
    entry->second = Datum(kLiteral) << kTagShift | Datum(constants.size());
    constants.push_back({factor, symbol});
  }
  return entry->second;
}

const Constant& constant_at(Datum a) { return constants[payload(a)]; }
bool is_number(Datum a, double value) {
  return tag_of(a) == kLiteral && constant_at(a).symbol == kNone && constant_at(a).factor == value;
}

uint64_t residue(const Constant& c, unsigned level) {
  const uint64_t p = prime_of(level);
  int exponent = 0;
  auto mantissa = int64_t(std::ldexp(std::frexp(c.factor, &exponent), 53));
  exponent -= 53;
  uint64_t r = uint64_t(mantissa < 0 ? -mantissa : mantissa) % p;
  r = r * power(exponent < 0 ? inverse(2, p) : 2, uint64_t(std::abs(exponent)), p) % p;
  if (c.symbol == kSymbolLog2E) r = r * log2e[level] % p;
  if (c.symbol == kSymbolLn2) r = r * ln2[level] % p;
  return mantissa < 0 && r != 0 ? p - r : r;
}

double exact(double result, bool is_exact) {
  if (!is_exact) no_meaning("constants whose result is not exact");
  return result;
}
Datum add_constants(const Constant& a, const Constant& b) {
  if (a.factor == 0) return constant(b.factor, b.symbol);
  if (b.factor == 0) return constant(a.factor, a.symbol);
  if (a.symbol != b.symbol) no_meaning("a sum of unlike constants");
  const double sum = a.factor + b.factor;
  return constant(exact(sum, sum - a.factor == b.factor && sum - b.factor == a.factor), a.symbol);
}
Datum multiply_constants(const Constant& a, const Constant& b) {
  const double product = a.factor * b.factor;
  exact(product, std::fma(a.factor, b.factor, -product) == 0);
  if (a.symbol == kNone || b.symbol == kNone) return constant(product, Symbol(a.symbol | b.symbol));
  if (a.symbol == b.symbol) no_meaning("a product of log2 e with itself");
  return constant(product, kNone);
}

// --- expressions that wait for their level, or for the rest of softplus ------------------------------------------

// Parts of softplus first, then what may lie at any level: a logarithm, and roots of constants.
enum Kind : uint8_t { kPositive, kMagnitude, kMinusMagnitude, kExpMinus, kLogOnePlus, kLogarithm, kRoot, kInverseRoot };
struct Symbolic {
  Kind kind;
  Datum x;       // the argument: an element, or the constant under a root
  Datum factor;  // a constant that it is multiplied with, where it may lie at any level
};
std::vector<Symbolic> symbolics;

Datum symbolic(Kind kind, Datum x, Datum factor = 0) {
  symbolics.push_back({kind, x, factor});
  if (symbolics.size() > kPayload) no_meaning("too many logarithms");
  return Datum(kSymbolic) << kTagShift | Datum(symbolics.size() - 1);
}
Symbolic symbolic_at(Datum a) { return symbolics[payload(a)]; }

// --- degrees ------------------------------------------------------------------------------------------------------

struct Degree { uint64_t degree, linear; bool constant; };

uint64_t largest(uint64_t a, uint64_t b) { return a > b ? a : b; }

Degree degree_of(Datum a) {
  if (tag_of(a) != kLiteral) return {payload(a) >> kDegreeBits, payload(a) & kMostDegree, false};
  const Constant& c = constant_at(a);
  if (c.symbol != kNone) return {0, 1, true};
  int exponent = 0;
  double mantissa = std::fabs(std::frexp(c.factor, &exponent));
  double denominator = 1;
  while (mantissa != std::floor(mantissa)) mantissa *= 2, --exponent;
  for (; exponent < 0; ++exponent) denominator *= 2;
  for (; exponent > 0; --exponent) mantissa *= 2;
  return {0, uint64_t(std::fmin(mantissa * denominator, double(kMostDegree))), true};
}
Datum degree_cell(unsigned level, Degree d) {
  const uint64_t most = kMostDegree;
  const uint64_t degree = d.degree < most ? d.degree : most, linear = d.linear < most ? d.linear : most;
  return element(level, degree << kDegreeBits | linear);
}
Datum opaque(unsigned level, Datum a) {
  uses_random = true;
  largest_exponent = uint32_t(largest(largest_exponent, degree_of(a).degree));
  return degree_cell(level, {1, 1, false});
}
Datum add_degrees(unsigned level, Datum a, Datum b) {
  const Degree x = degree_of(a), y = degree_of(b);
  if (x.constant && x.linear == 0) return b;
  if (y.constant && y.linear == 0) return a;
  return degree_cell(level, {largest(x.degree, y.degree), x.linear + y.linear, false});
}
Datum multiply_degrees(unsigned level, Degree x, Degree y) {
  return degree_cell(level, {x.degree + y.degree, x.constant || y.constant ? x.linear * y.linear : 1, false});
}

// --- elements -----------------------------------------------------------------------------------------------------

uint64_t random_function(uint64_t tag, uint64_t x, unsigned level) {
  uses_random = true;
  uint64_t z = (x << 8 | tag) + salt;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return z % (prime_of(level) - 1) + 1;
}

Datum at_level(Datum a, unsigned level);

Datum inverse_cell(Datum a) {
  const unsigned level = level_of(a);
  return element(level, inverse(payload(a), prime_of(level)));
}

Datum root(Datum a, bool inverted) {
  const unsigned level = level_of(a);
  if (field.degrees) return opaque(level, a);
  const Datum found = element(level, random_function(level * 9, payload(a), level));
  return inverted ? inverse_cell(found) : found;
}

bool is_anywhere(Datum a) { return tag_of(a) == kSymbolic && symbolic_at(a).kind >= kLogarithm; }

// What may lie at any level takes that of the value it meets.
Datum brought_to(const Symbolic& s, unsigned level) {
  Datum found;
  if (s.kind != kLogarithm) {
    found = field.degrees ? degree_cell(level, {0, 1, false}) : root(at_level(s.x, level), s.kind == kInverseRoot);
  } else if (field.degrees) {
    found = opaque(level, s.x);
  } else {
    found = element(level, random_function(64 + level_of(s.x) * 8 + level, payload(s.x), level));
  }
  return multiply_cells(found, s.factor);
}

Datum at_level(Datum a, unsigned level) {
  if (tag_of(a) == kLiteral) return field.degrees ? a : element(level, residue(constant_at(a), level));
  if (is_anywhere(a)) return brought_to(symbolic_at(a), level);
  if (!is_element(a)) no_meaning("a clamp of values");
  if (level_of(a) != level) no_meaning("an exponent meets a value");
  return a;
}

bool either_unwritten(Datum a, Datum b) { return tag_of(a) == kUnwritten || tag_of(b) == kUnwritten; }

// max(x, 0) + log1p(exp(-|x|)): the logarithm of 1 + exp(x), which cannot overflow.
bool softplus(Datum a, Datum b, Datum& result) {
  if (tag_of(a) != kSymbolic || tag_of(b) != kSymbolic) return false;
  const Symbolic s = symbolic_at(a), t = symbolic_at(b);
  if (s.kind != kPositive || t.kind != kLogOnePlus || s.x != t.x) return false;
  assumes_softplus = true;
  result = apply(Function::log, add_cells(literal_cell(1), apply(Function::exp, s.x)));
  return true;
}

Datum exponential(Datum a) {
  const unsigned level = level_of(a);
  if (level == 0) no_meaning("an exponential of a value of the outputs' level");
  if (field.degrees) {
    const Degree d = degree_of(a);
    largest_exponent = uint32_t(largest(largest_exponent, d.degree));
    return degree_cell(level - 1, {largest(d.linear, 1), 1, false});
  }
  const uint64_t x = payload(a), p = prime_of(level - 1);
  const auto& t = table[level - 1];
  const uint64_t low = uint64_t(t[0][x % kTable]) * t[1][x / kTable % kTable] % p;
  return element(level - 1, low * t[2][x / kTable / kTable] % p);
}

}  // namespace

Datum literal_cell(double value) {
  const auto single = float(value);
  if (single == kLog2E || single == -kLog2E) return constant(value < 0 ? -1 : 1, kSymbolLog2E);
  if (single == kLn2 || single == -kLn2) return constant(value < 0 ? -1 : 1, kSymbolLn2);
  return constant(value, kNone);
}

Datum add_cells(Datum a, Datum b) {
  if (either_unwritten(a, b)) return kPoison;
  if (is_number(a, 0)) return b;
  if (is_number(b, 0)) return a;
  Datum found;
  if (softplus(a, b, found) || softplus(b, a, found)) return found;
  if (tag_of(a) == kLiteral && tag_of(b) == kLiteral) return add_constants(constant_at(a), constant_at(b));
  if (!is_element(a) && !is_element(b)) no_meaning("a sum of logarithms or clamps");
  const unsigned level = level_of(is_element(a) ? a : b);
  a = at_level(a, level), b = at_level(b, level);
  if (field.degrees) return add_degrees(level, a, b);
  const uint64_t p = prime_of(level), sum = payload(a) + payload(b);
  return element(level, sum >= p ? sum - p : sum);
}

Datum negate_cell(Datum a) {
  if (is_element(a) && !field.degrees) {
    const uint64_t x = payload(a);
    return x == 0 ? a : element(level_of(a), prime_of(level_of(a)) - x);
  }
  return multiply_cells(a, constant(-1, kNone));
}

Datum multiply_cells(Datum a, Datum b) {
  if (either_unwritten(a, b)) return kPoison;
  if (is_number(a, 1)) return b;
  if (is_number(b, 1)) return a;
  if (tag_of(a) == kLiteral && tag_of(b) == kLiteral) return multiply_constants(constant_at(a), constant_at(b));
  if (tag_of(b) == kSymbolic && !is_element(a)) std::swap(a, b);
  if (tag_of(a) == kSymbolic && tag_of(b) == kLiteral) {
    const Symbolic s = symbolic_at(a);
    if (is_anywhere(a)) return is_number(b, 0) ? b : symbolic(s.kind, s.x, multiply_cells(s.factor, b));
    if (s.kind == kMagnitude && is_number(b, -1)) return symbolic(kMinusMagnitude, s.x);
    no_meaning("a clamp of values");
  }
  if (!is_element(a) && !is_element(b)) no_meaning("a product of logarithms or clamps");
  const unsigned level = level_of(is_element(a) ? a : b);
  a = at_level(a, level), b = at_level(b, level);
  if (field.degrees) return multiply_degrees(level, degree_of(a), degree_of(b));
  return element(level, payload(a) * payload(b) % prime_of(level));
}

Datum divide_cells(Datum a, Datum b) {
  if (either_unwritten(a, b)) return kPoison;
  if (tag_of(a) == kLiteral && tag_of(b) == kLiteral) {
    const Constant &x = constant_at(a), &y = constant_at(b);
    if (y.symbol != kNone || y.factor == 0) no_meaning("a quotient of constants");
    return constant(exact(x.factor / y.factor, std::fma(x.factor / y.factor, y.factor, -x.factor) == 0), x.symbol);
  }
  if (is_anywhere(a) && tag_of(b) == kLiteral) {
    const Symbolic s = symbolic_at(a);
    return symbolic(s.kind, s.x, divide_cells(s.factor, b));
  }
  if (tag_of(a) == kLiteral && is_anywhere(b) && symbolic_at(b).kind != kLogarithm) {
    const Symbolic s = symbolic_at(b);
    return symbolic(s.kind == kRoot ? kInverseRoot : kRoot, s.x, divide_cells(a, s.factor));
  }
  if (!is_element(a) && !is_element(b)) no_meaning("a quotient of logarithms or clamps");
  const unsigned level = level_of(is_element(a) ? a : b);
  a = at_level(a, level), b = at_level(b, level);
  if (field.degrees) {
    Degree y = degree_of(b);
    y.degree = y.constant ? 0 : largest(y.degree, 1), y.linear = largest(y.linear, 1);
    return multiply_degrees(level, degree_of(a), y);
  }
  return element(level, payload(a) * payload(inverse_cell(b)) % prime_of(level));
}

Datum larger_cell(Datum a, Datum b) {
  if (either_unwritten(a, b)) return kPoison;
  if (is_number(a, 0)) std::swap(a, b);
  if (is_number(b, 0) && is_element(a)) return symbolic(kPositive, a);
  if (is_element(a) && is_element(b) && b == negate_cell(a)) return symbolic(kMagnitude, a);
  no_meaning("a clamp of values");
}

Datum apply(Function function, Datum a) {
  if (tag_of(a) == kUnwritten) return kPoison;
  if (tag_of(a) == kSymbolic && symbolic_at(a).kind == kMinusMagnitude && function == Function::exp) {
    return symbolic(kExpMinus, symbolic_at(a).x);
  }
  if (tag_of(a) == kSymbolic && symbolic_at(a).kind == kExpMinus && function == Function::log1p) {
    return symbolic(kLogOnePlus, symbolic_at(a).x);
  }
  if (is_number(a, 0) && (function == Function::exp || function == Function::exp2)) return literal_cell(1);
  if (tag_of(a) == kLiteral && !is_number(a, 0) && (function == Function::sqrt || function == Function::rsqrt)) {
    return symbolic(function == Function::sqrt ? kRoot : kInverseRoot, a, constant(1, kNone));
  }
  if (!is_element(a)) no_meaning("a function of a constant, a logarithm or a clamp");
  const unsigned level = level_of(a);
  switch (function) {
    case Function::exp: return exponential(a);
    case Function::exp2: return exponential(multiply_cells(a, constant(1, kSymbolLn2)));
    case Function::log: return symbolic(kLogarithm, a, constant(1, kNone));
    case Function::log1p: return symbolic(kLogarithm, add_cells(a, literal_cell(1)), constant(1, kNone));
    case Function::log2: return symbolic(kLogarithm, a, constant(1, kSymbolLog2E));
    case Function::abs: return symbolic(kMagnitude, a);
    case Function::sqrt: return root(a, false);
    case Function::rsqrt: return root(a, true);
    case Function::tanh: {
      if (field.degrees) return multiply_degrees(level - 1, degree_of(exponential(a)), degree_of(exponential(a)));
      const Datum e = exponential(add_cells(a, a)), one = literal_cell(1);
      return divide_cells(add_cells(e, negate_cell(one)), add_cells(e, one));
    }
  }
  __builtin_unreachable();
}

// `degrees`, or `elements DEPTH SALT`, and for each level its prime, root, ln 2 and log2 e.
void set_field(std::istream& words) {
  std::string kind;
  unsigned depth = 0;
  words >> kind >> depth >> salt;
  field.degrees = kind == "degrees";
  for (unsigned level = 0; level < depth; ++level) {
    uint64_t root = 0;
    words >> field.prime[kLevel0 + level] >> root >> ln2[level] >> log2e[level];
    const uint64_t p = prime_of(level);
    for (unsigned digit = 0; digit < 3 && !field.degrees; ++digit) {
      uint64_t value = 1;
      for (uint32_t& entry : table[level][digit]) entry = uint32_t(value), value = value * root % p;
      root = value;
    }
  }
}

void print_field() {
  std::printf("field exponents=%u softplus=%d random=%d\n", largest_exponent, assumes_softplus, uses_random);
  for (const Constant& c : constants) std::printf("constant factor=%a symbol=%d\n", c.factor, c.symbol);
}

}  // namespace kdsl
#endif
