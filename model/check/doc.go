// Package check tests a segment: its own, or one that a user wrote.
//
//	func TestMyLayer(t *testing.T) {
//		if err := check.Segment(myLayer{width: 6}, check.Options{Rows: 2, Context: 3}); err != nil {
//			t.Error(err)
//		}
//	}
//
// Segment compares every gradient with central differences in float64 on the CPU, and holds the
// segment to its Spec: a phase is given only what it may use, finds NaN in all memory that it has
// to write, leaves alone what it may only read, and gives the same bits when it is run again.
package check
