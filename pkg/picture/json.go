package picture

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// WriteJSON writes the summary for programs.
func WriteJSON(w io.Writer, s *cluster.Summary) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return fmt.Errorf("write the picture as JSON: %w", err)
	}
	return nil
}
