package allocation

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// NewCache makes a cache of so many compiled selectors. It is safe for concurrent use.
func NewCache(size int) *cel.Cache {
	return cel.NewCache(size, cel.Features{EnableConsumableCapacity: Features.ConsumableCapacity})
}

// SelectorError is about a selector that cannot be evaluated. The author of the claim or of the
// class must correct it.
type SelectorError struct {
	Expression string
	// Compiles: the expression is valid and fails for this device, for example because the
	// device lacks an attribute.
	Compiles bool
	Err      error
}

func (e *SelectorError) Error() string {
	if e.Compiles {
		return fmt.Sprintf("the selector `%s` fails: %v", e.Expression, e.Err)
	}
	return fmt.Sprintf("the selector `%s` is wrong: %v", e.Expression, e.Err)
}

func (e *SelectorError) Unwrap() error { return e.Err }

// Matches reports whether all selectors choose a device. Like the scheduler, it stops at the first
// that does not, or that cannot be evaluated: then the error is a SelectorError. If the context has
// ended, that says nothing about the selectors.
func Matches(ctx context.Context, cache *cel.Cache, d cel.Device, selectors ...resourceapi.DeviceSelector) (bool, error) {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("evaluate selectors: %w", err)
		}
		compiled := cache.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false, &SelectorError{Expression: s.CEL.Expression, Err: compiled.Error}
		}
		ok, _, err := compiled.DeviceMatches(ctx, d)
		if ended := ctx.Err(); err != nil && ended != nil {
			return false, fmt.Errorf("evaluate selectors: %w", ended)
		}
		if err != nil {
			return false, &SelectorError{Expression: s.CEL.Expression, Compiles: true, Err: err}
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}
