package lists

// Map returns f of each element, nil if there are none.
func Map[T, U any](all []T, f func(T) U) []U {
	if len(all) == 0 {
		return nil
	}
	out := make([]U, len(all))
	for i, x := range all {
		out[i] = f(x)
	}
	return out
}

// Filter returns the elements that keep accepts, nil if there are none.
func Filter[T any](all []T, keep func(T) bool) (out []T) {
	for _, x := range all {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// Find returns the first element that is accepts, nil if there is none.
func Find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Union returns all, and what of more is not in it.
func Union[T comparable](all []T, more ...T) []T {
	return UnionFunc(all, func(a, b T) bool { return a == b }, more...)
}

// UnionFunc is Union for elements that are the same by a function.
func UnionFunc[T any](all []T, same func(a, b T) bool, more ...T) []T {
	for _, x := range more {
		if Find(all, func(y *T) bool { return same(*y, x) }) == nil {
			all = append(all, x)
		}
	}
	return all
}
