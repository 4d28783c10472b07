package strict

import (
	"bytes"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Text is a document of a file.
type Text struct {
	// File names it in errors.
	File string
	Data []byte
	// Before is the number of lines of the file before the document, negative if the lines of the
	// document are not lines of the file.
	Before int
	// AnyCase accepts keys in another case than that of the fields.
	AnyCase bool
}

// lines are the lines of the values of a document, by path. A document in a single line has none.
func (t Text) lines() map[string]int {
	if t.Before < 0 || !bytes.Contains(bytes.TrimSpace(t.Data), []byte("\n")) {
		return nil
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(t.Data, &document); err != nil || len(document.Content) == 0 {
		return nil
	}
	found := map[string]int{}
	collect(found, "", document.Content[0], document.Content[0].Line, t.Before)
	return found
}

// collect adds the lines of a node and what is in it. An alias is not followed: the line is that of
// the alias.
func collect(found map[string]int, path string, n *yamlv3.Node, line, before int) {
	if _, known := found[path]; known {
		path += "\x00" // a duplicate; the first has the path
	}
	found[path] = line + before
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			collect(found, Key(path, n.Content[i].Value), n.Content[i+1], n.Content[i].Line, before)
		}
	case yamlv3.SequenceNode:
		for i, entry := range n.Content {
			collect(found, Index(path, i), entry, entry.Line, before)
		}
	}
}

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
