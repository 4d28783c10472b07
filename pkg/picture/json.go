package picture

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the model for programs. The list of nodes is there even when
// it is empty, so that a script need not tell null from none.
func WriteJSON(w io.Writer, m *Model) error {
	out := *m
	if out.Nodes == nil {
		out.Nodes = []Node{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("write the picture as JSON: %w", err)
	}
	return nil
}
