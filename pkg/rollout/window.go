package rollout

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // Images have no time zones.

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// InWindow reports whether a time is in one of the windows, and when that changes; zero: never. No
// windows mean all times.
func InWindow(windows []v1beta1.Window, now time.Time) (open bool, changes time.Time, err error) {
	if len(windows) == 0 {
		return true, time.Time{}, nil
	}
	for i := range windows {
		w := &windows[i]
		spans, err := spansOf(w, now)
		if err != nil {
			return false, time.Time{}, err
		}
		for _, s := range spans {
			switch {
			case s.start.After(now):
				if !open {
					changes = Earliest(changes, s.start)
				}
			case s.end.After(now):
				if !open {
					changes = time.Time{}
				}
				// Windows that follow each other are found when the first one ends.
				open, changes = true, Earliest(changes, s.end)
			}
		}
	}
	return open, changes, nil
}

type span struct{ start, end time.Time }

// spansOf returns the times of a window from yesterday to a week from now.
func spansOf(w *v1beta1.Window, now time.Time) ([]span, error) {
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone %s does not exist; use a name such as Europe/Berlin", w.TimeZone)
	}
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time of day: use one such as 22:00", w.Start)
	}
	end, err := time.Parse("15:04", w.End)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time of day: use one such as 22:00", w.End)
	}
	var spans []span
	year, month, day := now.In(zone).Date()
	for i := -1; i <= 7; i++ {
		from := time.Date(year, month, day+i, start.Hour(), start.Minute(), 0, 0, zone)
		// Where clocks change at midnight, the window may begin on the day before.
		weekday := time.Date(year, month, day+i, 12, 0, 0, 0, zone).Weekday()
		if len(w.Days) > 0 && !slices.Contains(w.Days, v1beta1.Day(weekday.String())) {
			continue
		}
		last := day + i
		if end.Before(start) {
			last++
		}
		spans = append(spans, span{from, time.Date(year, month, last, end.Hour(), end.Minute(), 0, 0, zone)})
	}
	return spans, nil
}
