package cpu

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

func TestAttention(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			s := device.AttentionShape{
				Batch: rapid.IntRange(0, 3).Draw(t, "batch"), Heads: rapid.IntRange(1, 3).Draw(t, "heads"),
				Tokens:  rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 80)).Draw(t, "tokens"),
				HeadDim: rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 70), rapid.SampledFrom([]int{16, 32, 48, 64, 80})).Draw(t, "headDim"),
			}
			checkAttention(t, r, s)
		})
		// Several blocks of queries and keys, the last one short.
		for _, s := range []device.AttentionShape{
			{Batch: 1, Tokens: 300, Heads: 2, HeadDim: 16},
			{Batch: 2, Tokens: 128, Heads: 1, HeadDim: 64},
			{Batch: 1, Tokens: 515, Heads: 1, HeadDim: 32},
		} {
			checkAttention(t, r, s)
		}
	})
}

func checkAttention(t failer, r *rig, s device.AttentionShape) {
	n := s.Batch * s.Tokens * s.Heads * s.HeadDim
	qkv, o, lse := r.random(3*n), r.alloc(n), r.stat(s.Batch*s.Heads*s.Tokens)
	r.do(func(k device.Kernels) { k.Attention(o, lse, qkv, s) })
	wo, wl, p := refAttention(values(qkv), s)
	r.nearSize(t, "o", o, wo, s.HeadDim+s.Tokens, 2)
	r.nearSize(t, "lse", lse, wl, s.HeadDim+s.Tokens, 2)

	do, dqkv := r.random(n), r.alloc(3*n)
	// The reference has an o that was not rounded.
	o = r.statOf(wo)
	r.do(func(k device.Kernels) {
		k.AttentionBackward(dqkv, do, o, lse, qkv, r.stat(k.AttentionWork(s)), s)
	})
	r.nearSize(t, "dqkv", dqkv, refAttentionBackward(values(do), values(qkv), p, s), 4*(s.HeadDim+s.Tokens), 8)
}

// Scores far outside the range of exp must not overflow.
func TestAttentionWithLargeScores(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		for _, d := range []int{4, 16} {
			const tokens = 300
			s := device.AttentionShape{Batch: 1, Tokens: tokens, Heads: 1, HeadDim: d}
			v := values(r.random(3 * tokens * d))
			for i := range v {
				if i%(3*d) < 2*d {
					v[i] *= 40
				}
			}
			qkv, o, lse := r.of(v), r.alloc(tokens*d), r.stat(tokens)
			r.do(func(k device.Kernels) { k.Attention(o, lse, qkv, s) })
			wo, wl, _ := refAttention(values(qkv), s)
			r.nearSize(t, "o", o, wo, tokens, 4000)
			r.nearSize(t, "lse", lse, wl, tokens, 4000)
		}
	})
}
