/* One program's faults and traces. */
int reverse, tracing;
i64 fault;
static i64 fault_message, fault_index, fault_extent;

i64 outside(i64 i, i64 n, int message) {
  if (!fault) { fault = 1; fault_message = message; fault_index = i; fault_extent = n; }
  return 0;
}

/* A trace is a list of records: number, keys, elements, then the keys and the elements, each in 8 bytes. */
static i64 *trace;
static i64 trace_length, trace_room;
static void trace_put(i64 x) {
  if (trace_length == trace_room) { trace_room = trace_room ? 2 * trace_room : 1 << 16; trace = realloc(trace, 8 * trace_room); }
  trace[trace_length++] = x;
}
EXPORT i64 *trace_data(i64 *length) { *length = trace_length; return trace; }
EXPORT void trace_free(void) { free(trace); trace = 0; trace_length = trace_room = 0; }

void kernels(void ***a, const i64 **lengths); /* of the program, in their order */
EXPORT void run(void ***a, const i64 **lengths, int backwards, int traced, i64 *report) {
  reverse = backwards; tracing = traced; fault = 0;
  kernels(a, lengths);
  report[0] = fault; report[1] = fault_message; report[2] = fault_index; report[3] = fault_extent;
}
