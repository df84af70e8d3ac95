#include "textflag.h"

// The process starts here, with argc, argv... on its stack. Called as "init" it
// goes to bare; else the Go runtime starts as usual.
TEXT cube_guest_entry(SB),NOSPLIT|NOFRAME,$0
	MOVD $1, R3
	MOVB R3, ·entered(SB)
	MOVD 0(RSP), R3
	CMP  $2, R3
	BNE  runtime
	MOVD 16(RSP), R3
	MOVWU (R3), R4
	MOVD $0x74696e69, R5 // "init"
	CMP  R5, R4
	BNE  runtime
	MOVBU 4(R3), R4
	CBNZ R4, runtime
	B    ·bare(SB)
runtime:
	B    _rt0_arm64_linux(SB)

// bare gives compiled code what it expects: a goroutine whose stack never ends.
TEXT ·bare(SB),NOSPLIT|NOFRAME,$0
	MOVD $·goroutine(SB), g
	BL   ·run(SB)
	MOVD $1, R0
	MOVD $94, R8  // exit_group
	SVC
	BRK

// func vfork(args *cloneArgs) uintptr
TEXT ·vfork(SB),NOSPLIT,$0-16
	MOVD args+0(FP), R0
	MOVD $88, R1
	MOVD $435, R8 // clone3
	SVC
	CBZ  R0, child
	MOVD R0, ret+8(FP)
	RET
child: // on the stack that args names
	BL   ·child(SB)
	MOVD $127, R0
	MOVD $94, R8  // exit_group
	SVC
	BRK
