package formats

import (
	"fmt"
	"reflect"
)

// Distinct refuses two different configurations that would have the same PartitionProfile. Of two
// that are the same, it keeps the first.
func Distinct(documents []Document) error {
	type place struct {
		document string
		profile  *Profile
	}
	seen := map[string]place{}
	for i := range documents {
		d := &documents[i]
		var kept []Profile
		for _, p := range d.Profiles {
			there, taken := seen[p.Name]
			switch {
			case p.Err != nil:
			case taken && reflect.DeepEqual(there.profile.Spec, p.Spec):
				continue
			case taken:
				return fmt.Errorf("%s, %s and %s, %s both become the PartitionProfile %s: rename one of them, or convert them separately",
					there.document, there.profile.Original, d.Name, p.Original, p.Name)
			default:
				seen[p.Name] = place{d.Name, &p}
			}
			kept = append(kept, p)
		}
		d.Profiles = kept
	}
	return nil
}
