package lists_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/lists"
)

func TestLists(t *testing.T) {
	numbers := []int{3, 1, 2}
	assert.Equal(t, []string{"3", "1", "2"}, lists.Map(numbers, strconv.Itoa))
	assert.Nil(t, lists.Map([]int{}, strconv.Itoa))
	assert.Equal(t, []int{3, 2}, lists.Filter(numbers, func(n int) bool { return n > 1 }))
	assert.Nil(t, lists.Filter(numbers, func(n int) bool { return n > 3 }))
	assert.Same(t, &numbers[1], lists.Find(numbers, func(n *int) bool { return *n < 3 }))
	assert.Nil(t, lists.Find(numbers, func(n *int) bool { return *n > 3 }))
	assert.Equal(t, []int{3, 1, 2, 4}, lists.Union(numbers, 1, 4, 4))
	assert.Equal(t, []string{"a", "B"}, lists.UnionFunc(nil, strings.EqualFold, "a", "A", "B"))
}
