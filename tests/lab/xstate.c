/* Linux in user mode on a processor with AMX: an ordinary ptrace() between it and this machine's kernel, for LD_PRELOAD.
 *
 * It keeps the registers of its processes in 2696 bytes, which hold all up to AVX-512. The kernel here takes them back
 * only as a whole, with the tiles of AMX behind them: 11008 bytes. What is missing is empty, since no process may use
 * tiles that has not asked for them. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

static size_t whole; /* bytes of all registers, as the kernel gives them */

long ptrace(enum __ptrace_request request, ...)
{
    static long (*real)(enum __ptrace_request, ...);
    static char state[65536] __attribute__((aligned(64)));
    va_list words;
    va_start(words, request);
    pid_t pid = va_arg(words, pid_t);
    void *kind = va_arg(words, void *);
    void *data = va_arg(words, void *);
    va_end(words);
    if (!real)
        real = dlsym(RTLD_NEXT, "ptrace");
    if ((request != PTRACE_GETREGSET && request != PTRACE_SETREGSET) || (long)kind != NT_X86_XSTATE)
        return real(request, pid, kind, data);
    struct iovec *asked = data, all = {state, sizeof state};
    if (request == PTRACE_GETREGSET || !whole) {
        long answer = real(PTRACE_GETREGSET, pid, kind, &all);
        if (answer)
            return answer;
        whole = all.iov_len;
    }
    size_t length = asked->iov_len < whole ? asked->iov_len : whole;
    if (request == PTRACE_GETREGSET) {
        memcpy(asked->iov_base, state, length);
        asked->iov_len = length;
        return 0;
    }
    memset(state, 0, whole);
    memcpy(state, asked->iov_base, length);
    all.iov_len = whole;
    return real(PTRACE_SETREGSET, pid, kind, &all);
}
