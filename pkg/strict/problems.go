package strict

import (
	"errors"
	"fmt"
	"strings"
)

// mostTold limits how many problems of a file are reported: later ones often follow from the first.
const mostTold = 10

// Problems collects the problems of a file, to report all at once.
type Problems struct {
	file string
	told []string
	// lines are the lines of the file, by path; nil if they are not known.
	lines map[string]int
}

// NewProblems makes an empty collection for a file. Its name is for people.
func NewProblems(file string) *Problems { return &Problems{file: file} }

// Add adds a problem of the value at a path.
func (p *Problems) Add(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	if line := lineOf(p.lines, path); line > 0 {
		text += fmt.Sprintf(" (line %d)", line)
	}
	p.told = append(p.told, text)
}

// Err is an error with all problems, nil if there are none.
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

// Key is the path of a key in the object at path.
func Key(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Index is the path of an entry of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// lineOf is the line of the value at a path, or of the nearest object or list around it. Zero: it is
// not known.
func lineOf(lines map[string]int, path string) int {
	for path != "" {
		if line, ok := lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

// New makes an empty collection for the same file.
func (p *Problems) New() *Problems { return &Problems{file: p.file, lines: p.lines} }
