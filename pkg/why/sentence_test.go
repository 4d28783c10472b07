package why

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The sentence of a node that is full says whether there is room for fewer.
func TestSentenceAboutRoom(t *testing.T) {
	for want, tt := range map[string]struct{ count, room int64 }{
		"it asks for 3 × whole GPU, and there is room for 2 at once: of 4 whole GPUs, 2 are taken and 2 free.": {3, 2},
		"the scheduler's allocator finds no way to give it: of 4 whole GPUs, 2 are taken and 2 free.":          {2, 2},
	} {
		s := supply{what: kind{text: "whole GPU", whole: true}, places: 4, taken: 2, free: 2, room: tt.room, most: 4}
		s.Count = tt.count
		assert.Equal(t, want, s.sentence(Full, nil))
	}
}
