# Draws horizontal bars as an SVG for the README: `write_bars(path, title, note, groups)`. A group is a heading and
# its bars, (label, value, text after the bar); the longest bar of all groups fills the width, so lengths compare
# across groups. Colours are legible on light and dark pages. Uses only the standard library.
import os
import pathlib
from xml.sax.saxutils import escape

WIDTH, LABELS, TEXTS, BAR, GAP, HEADING = 760, 110, 190, 20, 6, 34
OURS, OTHERS, INK = "#d9480f", "#868e96", "#868e96"


def bar(y, label, value, text, unit, highlighted):
    length = max(1, value * unit)
    colour, weight = (OURS, "bold") if highlighted else (OTHERS, "normal")
    middle = y + BAR * 0.72
    return (f'<text x="{LABELS - 8}" y="{middle:.1f}" text-anchor="end" font-weight="{weight}">{escape(label)}</text>'
            f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
            f'<text x="{LABELS + length + 8:.1f}" y="{middle:.1f}" font-weight="{weight}">{escape(text)}</text>')


def write_bars(path, title, note, groups, highlighted):
    """groups: [(heading, [(label, value, text)])]; the bars labelled `highlighted` stand out. Written atomically."""
    unit = (WIDTH - LABELS - TEXTS) / max(value for _, bars in groups for _, value, _ in bars)
    parts, y = [], 34
    for heading, bars in groups:
        y += HEADING - BAR
        parts.append(f'<text x="{LABELS}" y="{y + 8}" font-style="italic">{escape(heading)}</text>')
        y += BAR
        for label, value, text in bars:
            parts.append(bar(y, label, value, text, unit, label == highlighted))
            y += BAR + GAP
    y += 18
    parts.append(f'<text x="0" y="{y}" font-size="11">{escape(note)}</text>')
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}" role="img" '
           f'font-family="sans-serif" font-size="13" fill="{INK}">\n<title>{escape(title)}</title>\n'
           f'<text x="0" y="18" font-size="15" font-weight="bold">{escape(title)}</text>\n' + "\n".join(parts)
           + "\n</svg>\n")
    path = pathlib.Path(path)
    scratch = path.with_name(path.name + f".tmp-{os.getpid()}")
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(svg)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
