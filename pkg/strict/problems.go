package strict

import (
	"errors"
	"fmt"
	"strings"
)

// maxReported is the maximum number of problems to report, because later ones often follow from the
// first.
const maxReported = 10

// Problems collects the problems of a file to report them at once.
type Problems struct {
	file string
	all  []string
	// lines are the lines of values by path, or nil if unknown.
	lines map[string]int
}

// NewProblems returns an empty collection for a file. Errors contain its name.
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
	p.all = append(p.all, text)
}

// Err returns an error with all problems, or nil if there are none.
func (p *Problems) Err() error {
	if len(p.all) == 0 {
		return nil
	}
	all := p.all
	if len(all) > maxReported {
		all = append(all[:maxReported:maxReported], fmt.Sprintf("and %d more", len(all)-maxReported))
	}
	return errors.New(p.file + ": " + strings.Join(all, "; "))
}

// Key returns the path of a key of the object at path.
func Key(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Index returns the path of an entry of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// lineOf returns the line of the value at a path, or of the nearest object or list around it. It returns
// 0 if the line is unknown.
func lineOf(lines map[string]int, path string) int {
	for path != "" {
		if line, ok := lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

// New returns an empty collection for the same file.
func (p *Problems) New() *Problems { return &Problems{file: p.file, lines: p.lines} }
