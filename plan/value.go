package plan

import "fmt"

// The names of values, as every program writes them.

func tokens(m int) Value         { return Value{Kind: Tokens, Lo: m, Piece: -1} }
func targets(m int) Value        { return Value{Kind: Targets, Lo: m, Piece: -1} }
func loss(m int) Value           { return Value{Kind: Loss, Lo: m, Piece: -1} }
func activation(l, m int) Value  { return Value{Kind: Activation, Index: l, Lo: m, Piece: -1} }
func activGrad(l, m int) Value   { return Value{Kind: ActivationGrad, Index: l, Lo: m, Piece: -1} }
func saved(chunk, m int) Value   { return Value{Kind: Saved, Index: chunk, Lo: m, Piece: -1} }
func stashed(chunk, m int) Value { return Value{Kind: Stashed, Index: chunk, Lo: m, Piece: -1} }
func reduced(b, piece int) Value { return Value{Kind: Reduced, Index: b, Piece: piece} }
func params(b, piece int) Value  { return Value{Kind: Parameters, Index: b, Piece: piece} }
func before(b, piece int) Value  { return Value{Kind: Parameters, Index: b, Use: 1, Piece: piece} }
func norm(p, d int) Value        { return Value{Kind: Norm, Index: p, Piece: d} }
func state(p, d int) Value       { return Value{Kind: State, Index: p, Piece: d} }
func verdict() Value             { return Value{Kind: Verdict, Piece: -1} }
func report(actor int) Value     { return Value{Kind: Report, Index: actor, Piece: -1} }
func gradient(b, use int, node Range, piece int) Value {
	return Value{Kind: Gradient, Index: b, Use: use, Lo: node.Lo, Hi: node.Hi, Piece: piece}
}

// persists reports whether a value outlives the program that writes it: a stage's parameters,
// which lie in place until the next Load, and the trainer's own report, which ends its round.
func persists(a ActorID, v Value) bool {
	return v.Kind == Parameters && v.Piece < 0 || v.Kind == Report && a == Trainer && v.Index == 0
}

// values lists values for a message, the first few of them.
func values(vs []Value) string {
	if len(vs) == 0 {
		return "nothing"
	}
	s := ""
	for i, v := range vs {
		if i == 4 {
			return s + fmt.Sprintf(" and %d more", len(vs)-i)
		}
		if i > 0 {
			s += ", "
		}
		s += v.String()
	}
	return s
}
