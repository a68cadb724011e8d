#include "textflag.h"

// func pause(n int)
TEXT ·pause(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX

again:
	PAUSE
	DECQ CX
	JNZ  again
	RET
