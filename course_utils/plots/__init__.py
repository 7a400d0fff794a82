"""The look of plots: `plt.style.use("course_utils.plots.style")`.

Importing this package, as the line above does, adds Inter to matplotlib. `typeface` has a Latin
subset of Inter 3.19 as TTF for plots and as WOFF2 for slides and book, and its license, OFL.txt.
"""

from pathlib import Path

from matplotlib.font_manager import fontManager

TYPEFACE = Path(__file__).with_name("typeface")

for _file in sorted(TYPEFACE.glob("*.ttf")):
    fontManager.addfont(_file)
