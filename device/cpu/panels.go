package cpu

// panels cuts columns into panels of the widths that the product kernels have, counted in
// sixteens: as many of the widest as leave nothing narrow behind.
type panels struct {
	wide, middle, narrow int // panels of 48, 32 and 16 columns
}

func panelsOf(columns int, widths []int) panels {
	s := tilesOf(columns, 16)
	if widths[0] == 1 {
		return panels{narrow: s}
	}
	switch {
	case s%3 == 2:
		return panels{wide: s / 3, middle: 1}
	case s%3 == 1 && s > 1: // 32 + 32 rather than 48 + 16
		return panels{wide: s/3 - 1, middle: 2}
	}
	return panels{wide: s / 3, narrow: s % 3}
}

func (p panels) count() int { return p.wide + p.middle + p.narrow }

// at is the first column of panel i and its width in sixteens.
func (p panels) at(i int) (column, width int) {
	switch {
	case i < p.wide:
		return 48 * i, 3
	case i < p.wide+p.middle:
		return 48*p.wide + 32*(i-p.wide), 2
	}
	return 48*p.wide + 32*p.middle + 16*(i-p.wide-p.middle), 1
}
