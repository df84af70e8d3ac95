#include "textflag.h"

// The process starts here, with argc, argv... on its stack. Called as "init" it
// goes to bare; else the Go runtime starts as usual.
TEXT cube_guest_entry(SB),NOSPLIT|NOFRAME,$0
	MOVB $1, ·entered(SB)
	MOVQ 0(SP), AX
	CMPQ AX, $2
	JNE  runtime
	MOVQ 16(SP), BX
	CMPL (BX), $0x74696e69 // "init"
	JNE  runtime
	CMPB 4(BX), $0
	JNE  runtime
	JMP  ·bare(SB)
runtime:
	JMP  _rt0_amd64_linux(SB)

// bare gives compiled code what it expects: a goroutine whose stack never ends,
// in R14 and in thread-local storage at -8(FS), and a zero in X15.
TEXT ·bare(SB),NOSPLIT|NOFRAME,$0
	LEAQ ·goroutine(SB), R14
	MOVQ R14, ·tls(SB)
	LEAQ ·tls+8(SB), SI
	MOVL $0x1002, DI // ARCH_SET_FS
	MOVL $158, AX    // arch_prctl
	SYSCALL
	XORPS X15, X15
	ANDQ $~15, SP
	CALL ·run(SB)
	MOVL $1, DI
	MOVL $231, AX    // exit_group
	SYSCALL
	INT  $3

// func vfork(args *cloneArgs) uintptr
TEXT ·vfork(SB),NOSPLIT,$0-16
	MOVQ args+0(FP), DI
	MOVL $88, SI
	MOVL $435, AX    // clone3
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, ret+8(FP)
	RET
child: // on the stack that args names
	XORPS X15, X15
	CALL ·child(SB)
	MOVL $127, DI
	MOVL $231, AX    // exit_group
	SYSCALL
	INT  $3
