package device

// Kernels are the operations of a device. All matrices are row-major and dense unless a leading
// dimension is given. Floating-point slices have the device's Float type; where a slice is of
// another type the comment says so. Outputs are overwritten, and do not overlap inputs, unless the
// comment says otherwise.
//
// On a device that works in F32, a slice may be BF16 where the comment does not say Float, each on its own:
// its elements are read as the float32 that they are, and results are rounded to the nearest, ties to even, as they are
// stored. Everything between is float32. What the comment calls Float is never BF16: statistics, losses, the
// gradients of parameters but those of products, and all that the optimizers touch.
//
// Every sum is taken in an order that depends on the shape alone: results are the same bits for
// any number of threads.
type Kernels interface {
	// Fill sets every element; Copy and Add work on slices of equal length and type.
	Fill(dst Slice, v float64)
	Copy(dst, src Slice)
	// Convert is dst[i] = src[i], rounded where dst is of a narrower type; both may be of either type.
	Convert(dst, src Slice)
	// Add is dst = a + b, element by element. dst may be a or b.
	Add(dst, a, b Slice)
	// Upload and Download move bytes between the host and the device.
	Upload(dst Slice, src []byte)
	Download(dst []byte, src Slice)

	// MatMul is C = op(A) op(B), or C += op(A) op(B), with the epilogue of p. A and B are of one type. The
	// products of BF16 are summed in float32 in an order of their own, and subnormal float32 count as 0 in it.
	MatMul(c, a, b Slice, p MatMul)
	// SumRows is dst[j] = sum over i of src[i,j], i ascending; dst is [cols], Float.
	SumRows(dst, src Slice, rows, cols int)

	// LayerNorm normalises each of rows rows of width (Ba et al. 2016), epsilon 1e-5:
	// y = (x-mean)*rstd*gain + bias. mean and rstd are [rows], Float, and are kept for the backward pass.
	LayerNorm(y, mean, rstd, x, gain, bias Slice, rows, width int)
	// LayerNormBackwardInput is dx = residual + the gradient for x. residual may be zero (none), or dx itself.
	LayerNormBackwardInput(dx, residual, dy, x, gain, mean, rstd Slice, rows, width int)
	// LayerNormBackwardWeight sums over rows in ascending order. dgain and dbias are Float.
	LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd Slice, rows, width int)

	// RMSNorm scales each of rows rows of width (Zhang and Sennrich 2019), epsilon 1e-5: y = x*rstd*gain with
	// rstd = 1/sqrt(avg(x^2) + epsilon). rstd is [rows], Float, and is kept for the backward pass.
	RMSNorm(y, rstd, x, gain Slice, rows, width int)
	// RMSNormBackwardInput is dx = residual + the gradient for x. residual may be zero (none), or dx itself.
	RMSNormBackwardInput(dx, residual, dy, x, gain, rstd Slice, rows, width int)
	// RMSNormBackwardWeight sums over rows in ascending order. dgain is Float.
	RMSNormBackwardWeight(dgain, dy, x, rstd Slice, rows, width int)

	// GELU is the tanh form (Hendrycks and Gimpel 2016): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
	GELU(y, x Slice)
	// GELUBackward is dx = dy * gelu'(x). dx may be dy.
	GELUBackward(dx, dy, x Slice)

	// SwiGLU is y = silu(gate) * up, silu(v) = v / (1 + exp(-v)) (Shazeer 2020). x is [rows, 2*width] with
	// gate and up side by side in a row, y is [rows, width].
	SwiGLU(y, x Slice, rows, width int)
	// SwiGLUBackward is the gradient for gate and up; dx is [rows, 2*width] and may be x.
	SwiGLUBackward(dx, dy, x Slice, rows, width int)

	// RoPE turns queries and keys by their position (Su et al. 2021): elements i and i + headDim/2 of a head
	// are a point that is turned by t * 10000^(-2i/headDim), t the position in the sequence. x and y are qkv as
	// in Attention; v is copied. HeadDim is even. y may be x.
	RoPE(y, x Slice, s AttentionShape)
	// RoPEBackward turns the gradients of queries and keys back. dx may be dy.
	RoPEBackward(dx, dy Slice, s AttentionShape)

	// Attention is softmax(q k^T / sqrt(headDim), causal) v. qkv is [batch*tokens, 3*heads*headDim] with q, k
	// and v side by side in a row, o is [batch*tokens, heads*headDim], lse (log of the sum of
	// exponentials of each row of scores) is [batch, heads, tokens], Float.
	Attention(o, lse, qkv Slice, s AttentionShape)
	// AttentionBackward needs work of AttentionWork elements, Float.
	AttentionBackward(dqkv, do, o, lse, qkv, work Slice, s AttentionShape)
	// AttentionWork is the elements of workspace that AttentionBackward needs.
	AttentionWork(s AttentionShape) int

	// Embed is y[i] = table[tokens[i]] + positions[i mod context]; tokens is I32 [rows*context],
	// table is [vocab, width], positions is [context or more, width], or zero (none).
	Embed(y, tokens, table, positions Slice, rows, context, width int)
	// EmbedBackward overwrites both gradients, which are Float; contributions are added with i ascending.
	// Positions of context and beyond get 0. dpositions may be zero (none).
	EmbedBackward(dtable, dpositions, dy, tokens Slice, rows, context, width int)

	// CrossEntropy is loss[i] = lse[i] - logits[i, targets[i]]; logits is [tokens, vocab], targets is I32;
	// loss and lse are Float.
	CrossEntropy(loss, lse, logits, targets Slice, tokens, vocab int)
	// CrossEntropyBackward is dlogits = (softmax(logits) - onehot(targets)) * scale.
	CrossEntropyBackward(dlogits, logits, lse, targets Slice, tokens, vocab int, scale float64)

	// Dropout is y = residual + mask * x / (1-p); residual may be zero (none). y may be x or residual. With
	// P == 0 it is y = residual + x.
	Dropout(y, residual, x Slice, d Dropout)

	// Sum is dst[0] = the sum of src in ascending order, in float64; src is Float or F64, dst is F64 [1].
	Sum(dst, src Slice)
	// SumSquares is dst[j] = sum of squares of the j-th block of src, in float64, ascending;
	// the last block may be short. src is Float, dst is F64 [ceil(len/block)].
	SumSquares(dst, src Slice, block int)

	// AdamW is one step of Loshchilov and Hutter 2019 (Algorithm 2), gradient first multiplied by
	// h.GradScale. All are Float. next, m2, v2 receive the new weights and moments and may be w, m, v.
	AdamW(next, m2, v2, w, m, v, grad Slice, h AdamW)
	// SGD is momentum SGD with decoupled weight decay: m2 = momentum*m + g; next = w - lr*(m2 + decay*w).
	// All are Float.
	SGD(next, m2, w, m, grad Slice, h SGD)
}

// MatMul gives the shape of a product: C is [M,N], op(A) is [M,K], op(B) is [K,N].
// TransA says that A is stored [K,M], TransB that B is stored [N,K].
// LDA, LDB, LDC are the elements from one stored row to the next; 0 means dense.
type MatMul struct {
	M, N, K        int
	TransA, TransB bool
	LDA, LDB, LDC  int
	Accumulate     bool
	// Bias, if not zero, is [N] and is added to every row.
	Bias Slice
	// GELU, if not zero, is [M,N] (dense) and receives gelu(C) after the bias; C keeps its input.
	GELU Slice
}

// AttentionShape is the shape of multi-head attention.
type AttentionShape struct {
	Batch, Tokens, Heads, HeadDim int
}

// Dropout names the random numbers of a mask: they are a pure function of
// (Key, sample, element), where element i of x belongs to sample Sample + i/PerSample and is its
// element i%PerSample. Key is derived from (seed, step, layer, site).
type Dropout struct {
	P         float64
	Key       uint64
	Sample    uint64
	PerSample int
}

// AdamW holds the hyper-parameters of one step. Step counts from 1.
type AdamW struct {
	LR, Beta1, Beta2, Epsilon, Decay float64
	Step                             int
	GradScale                        float64
}

// SGD holds the hyper-parameters of one step.
type SGD struct {
	LR, Momentum, Decay float64
	GradScale           float64
}
