package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
)

// The plain references, all in float64 and written from the formulas of the contract.

func refGELU(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func refGELUSlope(x float64) float64 {
	u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
	t := math.Tanh(u)
	return 0.5*(1+t) + 0.5*x*(1-t*t)*math.Sqrt(2/math.Pi)*(1+3*0.044715*x*x)
}

// refMatMul returns C. c, a and b are what lies in memory.
func refMatMul(c, a, b, bias []float64, p device.MatMul) (out []float64) {
	lda, ldb, ldc := strides(p)
	out = append([]float64(nil), c...)
	for i := range p.M {
		for j := range p.N {
			var sum float64
			for k := range p.K {
				x, y := i*lda+k, k*ldb+j
				if p.TransA {
					x = k*lda + i
				}
				if p.TransB {
					y = j*ldb + k
				}
				sum += a[x] * b[y]
			}
			if p.Accumulate {
				sum += c[i*ldc+j]
			}
			if bias != nil {
				sum += bias[j]
			}
			out[i*ldc+j] = sum
		}
	}
	return out
}

// strides are the leading dimensions, 0 resolved.
func strides(p device.MatMul) (lda, ldb, ldc int) {
	lda, ldb, ldc = p.LDA, p.LDB, p.LDC
	if lda == 0 {
		lda = p.K
		if p.TransA {
			lda = p.M
		}
	}
	if ldb == 0 {
		ldb = p.N
		if p.TransB {
			ldb = p.K
		}
	}
	if ldc == 0 {
		ldc = p.N
	}
	return lda, ldb, ldc
}

func refNorm(x, gain, bias []float64, rows, width int) (y, mean, rstd []float64) {
	y = make([]float64, rows*width)
	for r := range rows {
		row := x[r*width : (r+1)*width]
		var m, v float64
		for _, e := range row {
			m += e / float64(width)
		}
		for _, e := range row {
			v += (e - m) * (e - m) / float64(width)
		}
		s := 1 / math.Sqrt(v+1e-5)
		for j, e := range row {
			y[r*width+j] = (e-m)*s*gain[j] + bias[j]
		}
		mean, rstd = append(mean, m), append(rstd, s)
	}
	return y, mean, rstd
}

func refNormBackward(dy, x, gain, mean, rstd []float64, rows, width int) (dx, dgain, dbias []float64) {
	dx, dgain, dbias = make([]float64, rows*width), make([]float64, width), make([]float64, width)
	for r := range rows {
		for j := range width {
			e := r*width + j
			h := (x[e] - mean[r]) * rstd[r]
			dgain[j] += dy[e] * h
			dbias[j] += dy[e]
			// The derivative of every output of the row by this input.
			for i := range width {
				hi := (x[r*width+i] - mean[r]) * rstd[r]
				d := -1/float64(width) - h*hi/float64(width)
				if i == j {
					d++
				}
				dx[e] += dy[r*width+i] * gain[i] * rstd[r] * d
			}
		}
	}
	return dx, dgain, dbias
}

// refAttention makes the whole matrix of probabilities p[b,h,i,j].
func refAttention(qkv []float64, s device.AttentionShape) (o, lse, p []float64) {
	w := s.Heads * s.HeadDim
	at := func(which, b, t, h, d int) float64 { return qkv[(b*s.Tokens+t)*3*w+which*w+h*s.HeadDim+d] }
	o, lse = make([]float64, s.Batch*s.Tokens*w), make([]float64, s.Batch*s.Heads*s.Tokens)
	p = make([]float64, s.Batch*s.Heads*s.Tokens*s.Tokens)
	for b := range s.Batch {
		for h := range s.Heads {
			for i := range s.Tokens {
				n := (b*s.Heads+h)*s.Tokens + i
				row := p[n*s.Tokens : (n+1)*s.Tokens]
				var sum float64
				top := math.Inf(-1)
				for j := 0; j <= i; j++ {
					for d := range s.HeadDim {
						row[j] += at(0, b, i, h, d) * at(1, b, j, h, d) / math.Sqrt(float64(s.HeadDim))
					}
					top = math.Max(top, row[j])
				}
				for j := 0; j <= i; j++ {
					sum += math.Exp(row[j] - top)
				}
				lse[n] = top + math.Log(sum)
				for j := 0; j <= i; j++ {
					row[j] = math.Exp(row[j] - lse[n])
					for d := range s.HeadDim {
						o[(b*s.Tokens+i)*w+h*s.HeadDim+d] += row[j] * at(2, b, j, h, d)
					}
				}
			}
		}
	}
	return o, lse, p
}

func refAttentionBackward(do, qkv, p []float64, s device.AttentionShape) []float64 {
	w := s.Heads * s.HeadDim
	at := func(which, b, t, h, d int) int { return (b*s.Tokens+t)*3*w + which*w + h*s.HeadDim + d }
	dqkv := make([]float64, len(qkv))
	scale := 1 / math.Sqrt(float64(s.HeadDim))
	for b := range s.Batch {
		for h := range s.Heads {
			for i := range s.Tokens {
				n := (b*s.Heads+h)*s.Tokens + i
				row := p[n*s.Tokens : (n+1)*s.Tokens]
				dp := make([]float64, i+1)
				var delta float64
				for j := range dp {
					for d := range s.HeadDim {
						g := do[(b*s.Tokens+i)*w+h*s.HeadDim+d]
						dp[j] += g * qkv[at(2, b, j, h, d)]
						dqkv[at(2, b, j, h, d)] += row[j] * g
					}
					delta += row[j] * dp[j]
				}
				for j := range dp {
					ds := row[j] * (dp[j] - delta) * scale
					for d := range s.HeadDim {
						dqkv[at(0, b, i, h, d)] += ds * qkv[at(1, b, j, h, d)]
						dqkv[at(1, b, j, h, d)] += ds * qkv[at(0, b, i, h, d)]
					}
				}
			}
		}
	}
	return dqkv
}

func refEntropy(logits []float64, targets []int32, vocab int) (loss, lse, p []float64) {
	p = make([]float64, len(logits))
	for r, id := range targets {
		row := logits[r*vocab : (r+1)*vocab]
		top := math.Inf(-1)
		for _, v := range row {
			top = math.Max(top, v)
		}
		var sum float64
		for _, v := range row {
			sum += math.Exp(v - top)
		}
		l := top + math.Log(sum)
		for j, v := range row {
			p[r*vocab+j] = math.Exp(v - l)
		}
		loss, lse = append(loss, l-row[id]), append(lse, l)
	}
	return loss, lse, p
}

func refDropout(residual, x []float64, d device.Dropout) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		if d.P > 0 {
			e := i % d.PerSample
			word := random.Block(d.Key, d.Sample+uint64(i/d.PerSample), uint64(e/4))[e%4]
			if float64(word) < math.Round(d.P*(1<<32)) {
				v = 0
			}
			v /= 1 - d.P
		}
		if residual != nil {
			v += residual[i]
		}
		y[i] = v
	}
	return y
}

func refAdamW(w, m, v, grad []float64, h device.AdamW) (next, m2, v2 []float64) {
	for i := range w {
		g := grad[i] * h.GradScale
		mi := h.Beta1*m[i] + (1-h.Beta1)*g
		vi := h.Beta2*v[i] + (1-h.Beta2)*g*g
		mhat := mi / (1 - math.Pow(h.Beta1, float64(h.Step)))
		vhat := vi / (1 - math.Pow(h.Beta2, float64(h.Step)))
		next = append(next, w[i]-h.LR*(mhat/(math.Sqrt(vhat)+h.Epsilon)+h.Decay*w[i]))
		m2, v2 = append(m2, mi), append(v2, vi)
	}
	return next, m2, v2
}
