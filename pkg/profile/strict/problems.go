package strict

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// mostTold is how many problems of a file are told at once: the rest often comes
// from the first.
const mostTold = 10

// Problems collects what is wrong with a file, so that it is told all at once.
type Problems struct {
	file string
	told []string
}

// NewProblems begins with a file about which nothing is known yet. Its name is for
// people.
func NewProblems(file string) *Problems { return &Problems{file: file} }

// Add notes what is wrong with the value at a path.
func (p *Problems) Add(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	p.told = append(p.told, text)
}

// Err is the error that tells all of them, nil where there are none.
func (p *Problems) Err() error {
	if len(p.told) == 0 {
		return nil
	}
	told := p.told
	if len(told) > mostTold {
		told = append(told[:mostTold:mostTold], fmt.Sprintf("and %d more", len(told)-mostTold))
	}
	return errors.New(p.file + ": " + strings.Join(told, "; "))
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Key is the path of a key in the object at path.
func Key(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

// Index is the path of an entry of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
